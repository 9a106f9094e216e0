// uPlot in Preact: one canvas, as wide as its place, drawn again in the colours of the theme.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { useEffect, useRef } from 'preact/hooks';
import { formatBytes, formatClock, formatCount } from './units';

interface Props {
  /** Changes when series or marks do: then the plot is made anew. */
  version: string;
  options: (color: (name: string) => string) => Omit<uPlot.Options, 'width' | 'height'>;
  data: uPlot.AlignedData;
  height: number;
  label: string;
}

export function Plot({ version, options, data, height, label }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = place.current!;
    const style = getComputedStyle(element);
    const color = (name: string) => style.getPropertyValue(`--${name}`).trim() || '#888';
    const made = new uPlot(
      { width: element.clientWidth, height, ...options(color) },
      data,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [version, height]);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div class="plot" ref={place} role="img" aria-label={label} />;
}

/** Axes in the theme's colours; y in bytes. */
export function axes(color: (name: string) => string, time = true): uPlot.Axis[] {
  const common = {
    stroke: color('ink-2'),
    grid: { stroke: color('line'), width: 1 },
    ticks: { stroke: color('line'), width: 1, size: 4 },
    font: '12px system-ui, sans-serif',
  };
  return [
    {
      ...common,
      grid: { show: false },
      size: 30,
      values: (_, splits) =>
        splits.map((x) => (time ? formatClock(x * 1e9) : Number.isInteger(x) ? formatCount(x) : '')),
      space: time ? 80 : 50,
    },
    {
      ...common,
      size: 72,
      incrs: BYTE_STEPS,
      values: (_, splits) => splits.map((bytes) => formatBytes(bytes)),
    },
  ];
}

// Powers of two, so that grid lines are round numbers of KiB, MiB or GiB.
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** From zero, with a little air above. */
export function fromZero(_: uPlot, min: number, max: number): [number, number] {
  return [Math.min(0, min), max <= 0 ? 1 : max * 1.08];
}
