# A context that ends hands over its lanes; the next one at its address gets rings of its own.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -- ./fake_program reset
ask trace.db "SELECT count(*), sum(closed), sum(span_count) FROM lane"
