// A flame graph's frames: where each lies and how wide it is, in shares of the whole. Frames
// narrower than can be seen are not made, so that ten thousand sites cost no more than hundreds.
import { frameText, heldAt, type At } from './model';
import type { Site } from './types';
import { num } from './units';

export interface FlameFrame {
  text: string;
  file: string;
  bytes: number;
  depth: number;
  left: number; // 0 to 1
  width: number;
  parent: number; // index; -1 = the root
}

interface Node {
  text: string;
  file: string;
  bytes: number;
  children: Map<string, Node>;
}

/** `narrowest` is the smallest share that is drawn. Widest first among siblings. */
export function layoutFlame(sites: Site[], at: At, rootText: string, narrowest: number): FlameFrame[] {
  const root: Node = { text: rootText, file: '', bytes: 0, children: new Map() };
  for (const site of sites) {
    const bytes = num(heldAt(site, at).bytes);
    if (bytes <= 0) continue;
    root.bytes += bytes;
    let node = root;
    for (let i = site.frames.length - 1; i >= 0; i -= 1) {
      const frame = site.frames[i]!;
      const text = frameText(frame);
      const key = `${frame.file}\n${text}`;
      let child = node.children.get(key);
      if (!child) {
        child = { text, file: frame.file, bytes: 0, children: new Map() };
        node.children.set(key, child);
      }
      child.bytes += bytes;
      node = child;
    }
  }
  const frames: FlameFrame[] = [];
  if (root.bytes === 0) return frames;
  const place = (node: Node, depth: number, left: number, parent: number): void => {
    const width = node.bytes / root.bytes;
    if (width < narrowest) return;
    const index = frames.length;
    frames.push({ text: node.text, file: node.file, bytes: node.bytes, depth, left, width, parent });
    let at = left;
    for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
      place(child, depth + 1, at, index);
      at += child.bytes / root.bytes;
    }
  };
  place(root, 0, 0, -1);
  return frames;
}

/** Library frames are pale, so that one's own code stands out. */
export function isLibrary(frame: FlameFrame): boolean {
  return /site-packages|dist-packages|\/lib\/python|\.so(\.|$)/.test(frame.file) || frame.file === '';
}

/** The same file has the same hue wherever it appears. */
export function hueOf(file: string): number {
  let hash = 7;
  for (const char of file) hash = (hash * 31 + char.charCodeAt(0)) % 3600;
  return 185 + (hash % 130);
}
