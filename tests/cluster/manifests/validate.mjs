// validate.mjs FILE...: each document of these YAML files against the models of its kind: types,
// formats and what is required by the models' validators, and fields that do not exist by
// TypeScript, which refuses a property that an interface does not have. Prints one line a kind;
// exit status 1 when something is wrong, after saying what.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { parseAllDocuments } from "yaml";

const HERE = path.dirname(fileURLToPath(import.meta.url));

// Kinds for which npm has no models: what in them is a pod is checked as one.
const WITHOUT_MODEL = {
  "kubeflow.org/v1": (job) => Object.values(job.spec.pytorchReplicaSpecs),
  "kubeflow.org/v2beta1": (job) => Object.values(job.spec.mpiReplicaSpecs),
};
// The models have only v1 of this API, which became it with the fields of v1beta1.
const SAME_AS = { "admissionregistration.k8s.io/v1beta1": "admissionregistration.k8s.io/v1" };

function moduleOf(apiVersion) {
  const group = apiVersion.split("/")[0];
  if (group === "monitoring.coreos.com") {
    return `@kubernetes-models/prometheus-operator/${apiVersion}`;
  }
  if (group === "kyverno.io") return `@kubernetes-models/kyverno/${apiVersion}`;
  return `kubernetes-models/${apiVersion}`;
}

const problems = [];
const counts = new Map();
let typed = "";  // what TypeScript is to look at

async function check(from, apiVersion, kind, document) {
  const module = moduleOf(apiVersion);
  const name = `${from}: ${apiVersion} ${kind} ${document.metadata?.name ?? ""}`;
  const model = (await import(module))[kind];
  if (!model) {
    problems.push(`${name}: there is no such kind`);
    return;
  }
  try {
    new model(document).validate();
  } catch (error) {
    problems.push(`${name}: ${error.message}`);
  }
  const literal = JSON.stringify(document);
  typed += `/* ${name} */ { const _: import("${module}").I${kind} = ${literal}; }\n`;
}

for (const file of process.argv.slice(2)) {
  for (const parsed of parseAllDocuments(fs.readFileSync(file, "utf8"))) {
    for (const error of parsed.errors) problems.push(`${file}: ${error.message}`);
    const document = parsed.toJS({ merge: true });
    if (document === null) continue;
    const { apiVersion, kind } = document;
    counts.set(`${apiVersion} ${kind}`, (counts.get(`${apiVersion} ${kind}`) ?? 0) + 1);
    const replicas = WITHOUT_MODEL[apiVersion];
    if (replicas) {
      for (const { template } of replicas(document)) {
        // Their controllers choose it.
        const metadata = { name: kind, ...template.metadata };
        const pod = { apiVersion: "v1", kind: "Pod", metadata, spec: template.spec };
        await check(file, "v1", "Pod", pod);
      }
      continue;
    }
    const as = SAME_AS[apiVersion] ?? apiVersion;
    await check(file, as, kind, { ...document, apiVersion: as });
  }
}

const program = path.join(HERE, "documents.ts");
const options = { noEmit: true, strict: true, skipLibCheck: true, types: [],
                  module: ts.ModuleKind.NodeNext,
                  moduleResolution: ts.ModuleResolutionKind.NodeNext };
const host = ts.createCompilerHost(options);
const { getSourceFile, fileExists, readFile } = host;
host.fileExists = (name) => name === program || fileExists(name);
host.readFile = (name) => (name === program ? typed : readFile(name));
host.getSourceFile = (name, ...more) =>
  name === program ? ts.createSourceFile(name, typed, more[0]) : getSourceFile(name, ...more);
const compiled = ts.createProgram([program], options, host);
for (const found of ts.getPreEmitDiagnostics(compiled)) {
  const line = found.file === undefined ? "" :
    typed.split("\n")[found.file.getLineAndCharacterOfPosition(found.start).line];
  const name = /\/\* (.*?) \*\//.exec(line)?.[1] ?? "";
  problems.push(`${name}: ${ts.flattenDiagnosticMessageText(found.messageText, "\n")}`);
}

for (const [kind, count] of [...counts].sort()) {
  const only = WITHOUT_MODEL[kind.split(" ")[0]] ? " (no models on npm: only the pods in it)" : "";
  console.log(`${count} x ${kind}${only}`);
}
for (const problem of problems) console.log(problem);
process.exit(problems.length === 0 ? 0 : 1);
