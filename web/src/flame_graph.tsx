// The flame graph: outermost frame on top, a click (or Enter) keeps what runs through a frame;
// arrow keys walk over it.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { hueOf, isLibrary, layoutFlame } from './flame';
import type { At } from './model';
import type { Site } from './types';
import { formatBytes, formatShare } from './units';

const ROW = 21;
const NARROWEST_PIXELS = 2;

interface Props {
  sites: Site[];
  at: At;
  rootText: string;
  onFrame: (text: string) => void;
}

export function FlameGraph({ sites, at, rootText, onFrame }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const [pixels, setPixels] = useState(900);
  const [focused, setFocused] = useState(0);
  const [shown, setShown] = useState<number | null>(null);
  useEffect(() => {
    const observer = new ResizeObserver(() => setPixels(place.current!.clientWidth));
    observer.observe(place.current!);
    return () => observer.disconnect();
  }, []);
  const frames = useMemo(
    () => layoutFlame(sites, at, rootText, NARROWEST_PIXELS / Math.max(pixels, 1)),
    [sites, at, rootText, pixels],
  );
  const depth = frames.reduce((deepest, frame) => Math.max(deepest, frame.depth), 0);
  const whole = frames[0]?.bytes ?? 1;
  const now = Math.min(focused, frames.length - 1);
  const walk = (event: KeyboardEvent) => {
    const from = frames[now];
    if (!from) return;
    const level = frames.flatMap((frame, i) => (frame.depth === from.depth ? [i] : []));
    const target = {
      ArrowDown: frames.findIndex((frame) => frame.parent === now),
      ArrowUp: from.parent,
      ArrowRight: level[level.indexOf(now) + 1] ?? -1,
      ArrowLeft: level[level.indexOf(now) - 1] ?? -1,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    if (target < 0) return;
    setFocused(target);
    place.current!.querySelector<HTMLElement>(`[data-frame="${target}"]`)?.focus();
  };
  const told = frames[shown ?? now];
  return (
    <>
      <div
        class="flame"
        ref={place}
        role="group"
        aria-label="Flame graph of allocation sites"
        onKeyDown={walk}
        onMouseLeave={() => setShown(null)}
      >
        <div style={{ height: `${(depth + 1) * ROW}px` }}>
          {frames.map((frame, i) => (
            <button
              key={i}
              type="button"
              data-frame={i}
              tabIndex={i === now ? 0 : -1}
              class={i === 0 ? 'root' : isLibrary(frame) ? 'library' : 'own'}
              style={{
                left: `${frame.left * 100}%`,
                width: `${frame.width * 100}%`,
                top: `${frame.depth * ROW}px`,
                '--hue': hueOf(frame.file),
              }}
              aria-label={`${frame.text}: ${formatBytes(frame.bytes)}`}
              onClick={() => onFrame(i === 0 ? '' : frame.text)}
              onFocus={() => setFocused(i)}
              onMouseEnter={() => setShown(i)}
            >
              {frame.width * pixels > 30 ? frame.text : ''}
            </button>
          ))}
        </div>
      </div>
      {told && (
        <p class="told">
          <b>{formatBytes(told.bytes)}</b> ({formatShare(told.bytes / whole)}) through <code>{told.text}</code>
          {told.file && <small> {told.file}</small>}
        </p>
      )}
    </>
  );
}
