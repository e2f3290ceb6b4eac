if ! mokscope version --json | grep -q "\"run\": true"; then echo "skipped: built without the CUDA toolkit"; exit 77; fi
mokscope run --token 5
