"""SQL92 conditions on message properties: text -> a compiled condition. No I/O.

`condition.compile_condition` is the way in. The language, its types and what happens when they do
not fit are those of Apache's filter module, held equal by an oracle (tests/interop/sql92).

Source: SelectorParser.jj, expression/*.java of the filter module (5.4.0).
"""
