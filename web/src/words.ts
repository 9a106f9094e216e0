// The memory classes as people read them (docs/metrics.md has the definitions), in the order in
// which they are stacked.

export interface ClassWords {
  title: string;
  meaning: string;
}

const GPU: Record<string, ClassWords> = {
  fw_live: { title: 'tensors', meaning: "live blocks of the framework's allocator" },
  fw_cache: { title: 'framework cache', meaning: 'reserved by the framework, not in use' },
  device: { title: 'cuMemAlloc', meaning: 'allocated from the driver, outside the framework' },
  pool: { title: 'stream-ordered pools', meaning: 'cudaMallocAsync and its pools' },
  vmm: { title: 'virtual memory (VMM)', meaning: 'physical memory mapped by cuMemMap' },
  managed: { title: 'managed', meaning: 'cudaMallocManaged, migrates between GPU and host' },
  array: { title: 'arrays', meaning: 'CUDA arrays and textures' },
  graph: { title: 'graphs', meaning: 'memory nodes of CUDA graphs' },
  ipc: { title: 'IPC imports', meaning: "another process's memory, mapped here" },
  context: { title: 'context', meaning: 'the CUDA context itself, with its modules' },
  observer: { title: 'Tidemark itself', meaning: 'what the observing library uses' },
  unattributed: { title: 'unattributed', meaning: 'in the device figure, seen by no witness' },
};

const HOST: Record<string, ClassWords> = {
  anon: { title: 'anonymous', meaning: 'heap, stacks and private maps' },
  pinned: { title: 'pinned', meaning: 'page-locked by CUDA' },
  registered: { title: 'registered', meaning: 'host memory registered with CUDA' },
  pinned_other: { title: 'pinned by others', meaning: 'RDMA, io_uring and the like' },
  shmem: { title: 'shared', meaning: 'shared memory and tmpfs' },
  file: { title: 'file pages', meaning: 'mapped files, reclaimable' },
  swap: { title: 'swapped out', meaning: 'moved to swap' },
  lazyfree: { title: 'lazily freed', meaning: 'given back, not yet taken' },
  locked: { title: 'locked', meaning: 'mlock' },
  fw_host: { title: 'CPU tensors', meaning: 'lies inside anonymous' },
};

export const GPU_CLASSES = Object.keys(GPU);
/** Those whose sum is what a process holds of the host. */
export const HOST_CLASSES = ['anon', 'shmem', 'file', 'swap'];

export function classTitle(name: string): string {
  return (GPU[name] ?? HOST[name])?.title ?? name;
}

export function classMeaning(name: string): string {
  return (GPU[name] ?? HOST[name])?.meaning ?? '';
}

/** The colour of a class, the same in every view; style.css has both themes. */
export function classColor(name: string): string {
  return `var(--c-${name in GPU || name in HOST ? name : 'other'})`;
}

export function causeTitle(cause: string): string {
  return cause.replaceAll('_', ' ');
}
