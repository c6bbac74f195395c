"""Configuration as people write it (YAML, design section 6): parsing, validation, and translation for the engine."""
