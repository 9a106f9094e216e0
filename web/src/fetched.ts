// What a view asks the daemon for, again whenever `again` changes; one request at a time.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, askJson } from './api';

export interface Fetched<T> {
  data: T | null; // the last good answer
  error: { status: number; message: string } | null;
}

export function useFetched<T>(path: string | null, again: unknown): Fetched<T> {
  const [fetched, setFetched] = useState<Fetched<T> & { path: string | null }>({
    data: null,
    error: null,
    path: null,
  });
  const busy = useRef<string | null>(null);
  const latest = useRef(path);
  latest.current = path;
  useEffect(() => {
    if (path === null || busy.current === path) return;
    busy.current = path;
    askJson<T>(path)
      .then(
        (data) => ({ data, error: null }),
        (error: unknown) => ({
          data: null,
          error: {
            status: error instanceof ApiError ? error.status : 0,
            message: error instanceof Error ? error.message : String(error),
          },
        }),
      )
      .then((answer) => {
        if (busy.current === path) busy.current = null;
        if (latest.current !== path) return;
        setFetched((before) => ({
          ...answer,
          // A hiccup must not blank what is on the screen.
          data: answer.data ?? (before.path === path ? before.data : null),
          path,
        }));
      });
  }, [path, again]);
  return fetched.path === path ? fetched : { data: null, error: null };
}
