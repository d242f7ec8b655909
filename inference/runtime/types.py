"""Type aliases that the whole project shares."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = int | float
Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
Label = str | int | float  # the name of a value of a variable
