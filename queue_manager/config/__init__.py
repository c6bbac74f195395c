"""Configuration as people write it (YAML, design section 6): parsing, validation, and translation for the engine.

`parse.parse` reads text, `validate.validate` checks the whole, `compiled.to_engine` serves the engine,
`export.export` writes YAML. `problem.Problem` is a finding; all of them come at once.
"""
