import { defineConfig } from 'vite';

export default defineConfig({
  // Files made by build_page.py, served as they are.
  publicDir: process.env.TIDEMARK_PAGE_PUBLIC ?? false,
  // One script and one style sheet beside the page, and no data: URLs, which the page's own
  // content security policy forbids.
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: false },
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
});
