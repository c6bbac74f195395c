"""Job kinds: what each one asks for before any pod exists, and the next write that starts or stops it. No I/O."""
