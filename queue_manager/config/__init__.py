"""Configuration as people write it (YAML, design section 6): parsing, validation, and translation for the engine.

`parse.parse` reads text, `validate.validate` checks the whole, `compiled.to_engine` makes what engine and controller use,
`export.export` writes YAML. `problem.Problem` is a finding; they come all at once.
"""
