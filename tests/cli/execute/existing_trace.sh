mokscope execute -o executed.db >/dev/null
before=$(cksum <executed.db)
mokscope execute -o executed.db
status=$?
[ "$before" = "$(cksum <executed.db)" ] && echo unchanged
exit $status
