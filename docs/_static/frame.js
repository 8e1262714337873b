// Make a frame as high as its page, so that only the window scrolls; site.css has a height for pages opened as files.
function fit(frame) {
  try {
    const inner = frame.contentDocument.documentElement;
    const measure = () => { frame.style.height = inner.offsetHeight + "px"; };
    new ResizeObserver(measure).observe(inner);
    measure();
  } catch { /* a page opened as a file may not look into the frame */ }
}
