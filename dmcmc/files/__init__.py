"""Read and write files of any format: decompression within memory limits, validated archives, atomic writes."""
