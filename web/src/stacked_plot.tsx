// Classes on top of each other over time, with what each holds at the cursor, or now.
import { useState } from 'preact/hooks';
import type { Layer } from './timeline';
import { axes, fromZero, Plot } from './plot';
import { formatBytes } from './units';
import { classColor, classMeaning, classTitle } from './words';

interface Props {
  title: string;
  seconds: number[];
  layers: Layer[];
  theme: string;
  empty: string;
}

export function StackedPlot({ title, seconds, layers, theme, empty }: Props) {
  const [at, setAt] = useState<number | null>(null);
  if (layers.length === 0) {
    return (
      <section class="card">
        <h2>{title}</h2>
        <p class="empty">{empty}</p>
      </section>
    );
  }
  const index = at === null || at >= seconds.length ? seconds.length - 1 : at;
  const sums: number[][] = [];
  layers.forEach((layer, i) => {
    sums.push(layer.bytes.map((bytes, t) => bytes + (i > 0 ? sums[i - 1]![t]! : 0)));
  });
  // The highest sum first: each lower one is painted over it, down to the axis.
  const order = layers.map((_, i) => layers.length - 1 - i);
  const total = sums.at(-1)![index] ?? 0;
  const summary = layers.map((l) => `${classTitle(l.name)} ${formatBytes(l.bytes.at(-1)!)}`).join(', ');
  return (
    <section class="card">
      <h2>
        {title} <span class="figure">{formatBytes(total)}</span>
      </h2>
      <Plot
        version={`${theme} ${layers.map((layer) => layer.name).join()}`}
        label={`${title} over time. Now: ${summary}.`}
        height={220}
        data={[seconds, ...order.map((i) => sums[i]!)]}
        options={(color) => ({
          axes: axes(color),
          scales: { y: { range: fromZero } },
          legend: { show: false },
          cursor: { points: { show: false }, drag: { setScale: false } },
          hooks: { setCursor: [(u) => setAt(u.cursor.idx ?? null)] },
          series: [
            {},
            ...order.map((i) => ({
              stroke: color(`c-${layers[i]!.name}`),
              fill: color(`c-${layers[i]!.name}`),
              width: 1,
              points: { show: false },
            })),
          ],
        })}
      />
      <ul class="legend">
        {layers.map((layer) => (
          <li key={layer.name} title={classMeaning(layer.name)}>
            <i style={{ background: classColor(layer.name) }} />
            {classTitle(layer.name)}
            <b>{formatBytes(layer.bytes[index] ?? 0)}</b>
          </li>
        ))}
      </ul>
    </section>
  );
}
