"""The check before a run: whether each record's gradient depends on that record alone.

`check` asks the questions; `probe` runs copies of the module (`twins`) on synthetic records (`public_records`) to answer them.
"""
