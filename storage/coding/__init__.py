"""Small encodings shared by the backends: variable-length integers, checksums, Java's hashes. Must not do IO or know a
format.
"""
