# One version, in the header, in --version and in the JSON that scripts read.
header=$(sed -n 's/^#define MOKSCOPE_VERSION "\(.*\)"/\1/p' "$MOKSCOPE_ROOT/probes/version.h")
[ "$(mokscope version)" = "mokscope $header" ] || echo "version: $(mokscope version)"
[ "$(mokscope --version)" = "mokscope $header" ] || echo "--version: $(mokscope --version)"
mokscope version --json | python3 -c "
import json, sys
version = json.load(sys.stdin)
print(version['version'] == '$header', type(version['run']).__name__, bool(version['sqlite']), bool(version['yajl']))"
