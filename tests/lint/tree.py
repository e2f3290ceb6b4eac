"""The tracked files, and how a lint script ends. Used by the scripts beside it, which the runner starts one by one: exit
status 0 fine, 1 with lines 'file:line: what', 77 skipped with the reason."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE = (".c", ".h", ".cu", ".cuh", ".def")


def tracked(*suffixes):
    """Paths relative to the root of what git tracks and is on disk; skips the script where there is no git checkout."""
    done = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        skip("not a git checkout")
    paths = [path for path in done.stdout.split("\0") if path and os.path.isfile(os.path.join(ROOT, path))]
    return sorted(path for path in paths if not suffixes or path.endswith(suffixes))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def is_text(path):
    with open(os.path.join(ROOT, path), "rb") as file:
        return b"\0" not in file.read(8192)


def first_line(path):
    with open(os.path.join(ROOT, path), "rb") as file:
        return file.readline().decode(errors="replace")


def without_comments(text, keep_strings=True):
    """C text with comments (and the insides of strings) blanked; line numbers stay."""
    def blank(match):
        word = match.group(0)
        if word[0] in "\"'":
            return word if keep_strings else word[0] + re.sub(r"[^\n]", " ", word[1:-1]) + word[-1]
        return re.sub(r"[^\n]", " ", word)
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', blank, text, flags=re.S)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def finish(problems, checked):
    """Ends the script: the problems, or one line that says what was looked at. Nothing looked at is a problem too."""
    if not problems and not checked:
        problems = ["nothing was checked"]
    print("\n".join(problems) if problems else checked)
    sys.exit(1 if problems else 0)
