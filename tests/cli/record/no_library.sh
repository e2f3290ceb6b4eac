# A binary that was moved away from its library says where it looked.
cp "$(command -v mokscope)" .
./mokscope record -- true
