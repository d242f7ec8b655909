"""Constants that steer runs and do not belong to one package: unit, reason, benchmark."""
