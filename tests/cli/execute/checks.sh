mokscope execute --ranks 3 --tokens 9 --seeds 3 --routing zipf
