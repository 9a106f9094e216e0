// Requests to the daemon that served this page. Beyond loopback it wants its token, which is kept
// for as long as the tab is open.

const TOKEN = 'tidemark-token';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export function saveToken(token: string): void {
  sessionStorage.setItem(TOKEN, token.trim());
}

export async function ask(path: string, signal?: AbortSignal): Promise<Response> {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch(`/api/v1/${path}`, {
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    cache: 'no-store',
    signal: signal ?? null,
  });
  if (!response.ok) throw new ApiError(response.status, await reasonOf(response));
  return response;
}

export async function askJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask(path, signal)).json() as Promise<T>;
}

/** A query in the fields of a request message: repeated ones as arrays. */
export function query(fields: Record<string, string | number | boolean | (string | number)[]>): string {
  const parts: string[] = [];
  for (const [name, value] of Object.entries(fields)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== '') parts.push(`${name}=${encodeURIComponent(String(one))}`);
    }
  }
  return parts.join('&');
}

/** Hands a file of the daemon to the browser's downloads. */
export async function download(path: string, name: string): Promise<void> {
  const url = URL.createObjectURL(await (await ask(path)).blob());
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

async function reasonOf(response: Response): Promise<string> {
  try {
    return ((await response.json()) as { error: string }).error;
  } catch {
    return `the daemon answered ${response.status}`;
  }
}
