if ! mokscope version --json | grep -q "\"run\": true"; then echo "skipped: built without the CUDA toolkit"; exit 77; fi
if nvidia-smi -L >/dev/null 2>&1; then echo "skipped: there is a GPU"; exit 77; fi
mokscope run
