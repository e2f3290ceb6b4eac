# --roles: only these are recorded; a name that no module has is said.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
MOKSCOPE_LOG=debug mokscope record -q --roles store,mna -- ./fake_program reset 2>said
grep -c "has a role 'mna'" said
