// Rules for the page. Undefined names and wrong types are found by TypeScript.

import js from "@eslint/js";

// What changes elements. Views use update() of view/keyed.js instead, so that focus, selection and
// open details survive.
const RAW = [
  "append",
  "classList",
  "createElement",
  "createElementNS",
  "innerHTML",
  "innerText",
  "insertAdjacentHTML",
  "insertBefore",
  "outerHTML",
  "prepend",
  "removeAttribute",
  "replaceChildren",
  "replaceWith",
  "setAttribute",
  "textContent",
];

export default [
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off",
      "array-callback-return": "error",
      eqeqeq: "error",
      "no-implicit-coercion": "error",
      "no-promise-executor-return": ["error", { allowVoid: true }],
      "no-self-compare": "error",
      "no-template-curly-in-string": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
  {
    files: ["web/static/**/*.js"],
    ignores: ["web/static/view/keyed.js", "web/static/call/call.js"], // `append` of a FormData
    rules: {
      "no-restricted-properties": [
        "error",
        ...RAW.map((property) => ({ property, message: "Use update() of view/keyed.js." })),
      ],
    },
  },
];
