echo precious >executed.db
mokscope execute -o executed.db --force
status=$?
cat executed.db
exit $status
