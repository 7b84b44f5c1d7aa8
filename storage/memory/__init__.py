"""The backend in memory: the reference of the contract suite."""
