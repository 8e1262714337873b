"""Numbers eight at a time, for compiled loops that LLVM does not make vector instructions of."""
