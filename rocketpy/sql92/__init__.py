"""SQL92 conditions on message properties: text -> a compiled condition. No I/O.

The entry point is `condition.compile_condition`. The language, its types and the handling of type
mismatches are those of Apache's filter module; tests compare both (tests/interop/sql92).

Source: SelectorParser.jj, expression/*.java of the filter module (5.4.0).
"""
