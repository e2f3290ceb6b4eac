mokscope execute -o executed.db >/dev/null
mokscope info --json executed.db | grep -o "\"producer\": *\"executor\""
mokscope analyze --brief executed.db | grep -c time.kernel
