echo hello world > notes.txt
mokscope export notes.txt
