"""Small encodings shared by the backends: variable-length integers, checksums, Java's hashes. No IO, no formats."""
