# What the option table refuses, by one line that names the option, and exit status 2.
for arguments in "--jsno x.db" "--rank x x.db" "--rank=-1 x.db" "--rank" "--force=1 x.db" "a.db b.db" ""; do
    status=0
    mokscope export $arguments 2>&1 || status=$?
    echo "($status)"
done
