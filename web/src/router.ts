// Where one is, in the part of the address behind '#', so that every state of the page is a link.
import { useEffect, useState } from 'preact/hooks';

export interface Route {
  view: string;
  params: URLSearchParams;
}

export function currentRoute(): Route {
  const [view = '', params = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { view: view || 'node', params: new URLSearchParams(params) };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const changed = () => setRoute(currentRoute());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}

export function link(view: string, params: Record<string, string | number | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return `#/${view}${text ? `?${text}` : ''}`;
}

/** The same view with some parameters changed; an empty value drops one. */
export function changed(route: Route, params: Record<string, string | number>): string {
  return link(route.view, { ...Object.fromEntries(route.params), ...params });
}

/** Without a step back in the browser's history: for what is typed. */
export function replaceRoute(hash: string): void {
  history.replaceState(null, '', hash);
  dispatchEvent(new HashChangeEvent('hashchange'));
}
