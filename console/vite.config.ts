import { defineConfig } from "vite";

// A node for `npm run dev`; its pages come from here, its data from there.
const node = process.env.EBLA_URL ?? "http://127.0.0.1:7601";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/ebla/server/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy: { "/v1": node } },
});
