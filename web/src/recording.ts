// A recording, `run.tdm`, opened in the browser: nothing is sent anywhere. The messages are read by
// their descriptor, which the daemon serves beside the page, into the same JSON as the daemon's.
// Loaded only when somebody opens one.
import { createFileRegistry, fromBinary, toJson } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import type { Snapshot } from './types';

export interface Recording {
  name: string;
  snapshot: Snapshot;
}

// The layout is that of client/recording.h: version, length and checksum after the magic line.
const MAGIC = 'TIDEMARK-RECORDING\n';
const HEADER = MAGIC.length + 4 + 8 + 4;
const NEWEST = 2;

export async function openRecording(file: File): Promise<Recording> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (new TextDecoder().decode(bytes.subarray(0, MAGIC.length)) !== MAGIC) {
    throw new Error(`${file.name} is not a recording: make one with tidemark run -o run.tdm`);
  }
  if (bytes.length < HEADER) throw new Error(`${file.name} is cut short in its header`);
  const header = new DataView(bytes.buffer, MAGIC.length);
  const version = header.getUint32(0, true);
  if (version === 0 || version > NEWEST) {
    throw new Error(`${file.name} has format version ${version}; this page reads up to ${NEWEST}`);
  }
  const content = bytes.subarray(HEADER);
  if (BigInt(content.length) !== header.getBigUint64(4, true)) {
    throw new Error(`${file.name} is not whole: copy it again`);
  }
  const message = version === 1 ? content : await unpack(content, file.name);
  const descriptors = await fetch('/tidemark.binpb').then((answer) => answer.arrayBuffer());
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, new Uint8Array(descriptors)));
  const schema = registry.getMessage('tidemark.v1.Recording')!;
  const json = toJson(schema, fromBinary(schema, message), {
    alwaysEmitImplicit: true,
    useProtoFieldName: true,
    registry,
  }) as unknown as { snapshot?: Snapshot };
  if (!json.snapshot) throw new Error(`${file.name} holds no snapshot`);
  return { name: file.name, snapshot: json.snapshot };
}

async function unpack(packed: Uint8Array<ArrayBuffer>, name: string): Promise<Uint8Array> {
  try {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new Error(`${name} cannot be unpacked: copy it again`);
  }
}
