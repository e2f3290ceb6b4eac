echo hello world > notes.txt
mokscope report notes.txt
