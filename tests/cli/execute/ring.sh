mokscope execute --combine ring --ring 96 --json
