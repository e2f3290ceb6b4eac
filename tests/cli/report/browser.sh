browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo 'no chromium'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope report trace.db -o page.html > message.txt
cat > probe.txt <<'JS'
<script>
(function () {
  var said = [], tl = document.getElementById('tl'), svg = tl.querySelector('svg.t'), box = svg.getBoundingClientRect();
  function range() { return [+tl.dataset.from, +tl.dataset.to]; }
  function ok(what, yes) { said.push((yes ? 'ok ' : 'not ok ') + what); }
  var total = +tl.dataset.ns;
  ok('whole at first', range()[0] === 0 && range()[1] === total);
  document.getElementById('zi').click();
  var half = range();
  ok('button zooms', Math.abs(half[1] - half[0] - total / 2) < 1);
  svg.dispatchEvent(new WheelEvent('wheel', {bubbles: true, cancelable: true, ctrlKey: true, deltaY: -300, clientX: box.left + box.width / 4}));
  var near = range(), under = half[0] + (half[1] - half[0]) / 4;
  ok('wheel zooms where it points', near[1] - near[0] < half[1] - half[0] && Math.abs(near[0] + (near[1] - near[0]) / 4 - under) < 1);
  svg.dispatchEvent(new WheelEvent('wheel', {bubbles: true, cancelable: true, deltaY: -300}));
  ok('plain wheel scrolls the page', range()[0] === near[0]);
  tl.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
  ok('key moves', range()[0] > near[0]);
  ok('viewBox follows', Math.abs(svg.viewBox.baseVal.x - range()[0] * svg.dataset.w / total) < 0.01);
  ok('axis follows', document.querySelectorAll('#ax span').length > 2);
  tl.dispatchEvent(new KeyboardEvent('keydown', {key: '0', bubbles: true}));
  ok('0 shows the whole', range()[1] === total);
  document.getElementById('zx').click();
  ok('lanes open', document.querySelectorAll('#tl details:not([open])').length === 0);
  var lanes = document.querySelector('svg.l'), area = lanes.getBoundingClientRect();
  lanes.querySelector('path').dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: area.left + 5, clientY: area.top + 2}));
  ok('hover says what', /^SM \d+, CTA \d+, warp \d+: \w+/.test(document.getElementById('tip').textContent));
  document.title = said.join(';');
})();
</script></body>
JS
sed -e '/<\/body>/{
r probe.txt
d
}' page.html > probed.html
"$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir=profile --window-size=1200,900 --virtual-time-budget=3000 \
    --dump-dom file://"$PWD"/probed.html > dom.html 2> log.txt || { echo 'chromium does not run here'; exit 77; }
grep -o '<title>[^<]*ok [^<]*' dom.html | head -1 | sed 's/<title>//' | tr ';' '\n'
grep -c ':CONSOLE' log.txt || true
