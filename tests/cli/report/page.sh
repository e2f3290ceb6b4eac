command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
cp trace.db before.db
mokscope report trace.db
mokscope report trace.db -o again.html
cmp trace.db before.db # the trace is not changed
sed 's/again/trace/g' again.html | cmp - trace.html # the same bytes
mokscope analyze --json --no-store trace.db > out.json
python3 - <<'PY'
import html.parser, json, re
text = open('trace.html').read()
assert len(text) < 1000000
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links, self.svgs, self.titles = set(), set(), 0, 0
    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if 'id' in a:
            assert a['id'] not in self.ids, a['id']
            self.ids.add(a['id'])
        if tag == 'a':
            self.links.add(a['href'])
        assert tag not in ('img', 'link', 'iframe', 'object') and 'src' not in a, tag # no network
        self.svgs += tag == 'svg'
        self.titles += 'title' in a
page = Page()
page.feed(text)
assert all(link[0] == '#' and link[1:] in page.ids for link in page.links), page.links
assert {'timeline', 'partition', 'waits', 'run', 'figures', 'definitions'} <= page.ids
assert page.svgs >= 2 * 2 * 4 and page.titles > 20
assert 'http' not in re.sub('http-equiv', '', text)
d = json.load(open('out.json'))
for sentence in d['verdict']:
    assert sentence in text, sentence
for f in d['figures']:
    assert 'id="d-' + f['id'] + '"' in text
PY
