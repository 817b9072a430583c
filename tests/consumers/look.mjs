// look.mjs DIRECTORY: open a page and query it, as a JSON request on stdin says; print the answer as JSON.
//   url, width, height, dark   the page, the size of the window, whether the colour scheme is dark
//   wait                       an expression that is true once the page is ready
//   clicks, answer             selectors to click; the value that prompt() returns
//   ask                        an expression; its value is `said` in the answer
//   axe                        true: `findings` has serious and critical findings of axe-core
//   picture                    a file for a PNG of the whole page
// DIRECTORY has node_modules.
import fs from 'node:fs';
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(pathToFileURL(process.argv[2] + '/'));
const puppeteer = (await import(pathToFileURL(require.resolve('puppeteer-core')).href)).default;
const asked = JSON.parse(fs.readFileSync(0, 'utf8'));
const browser = await puppeteer.launch({
  executablePath: asked.chromium, pipe: true, userDataDir: asked.profile,
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--allow-file-access-from-files',
         '--no-first-run', '--disable-background-networking', '--disable-component-update'],
});
try {
  const page = await browser.newPage();
  const messages = [], dialogs = [];
  page.on('console', one => messages.push(`${one.type()}: ${one.text()}`));
  page.on('pageerror', one => messages.push(`error: ${one}`));
  page.on('requestfailed', one => messages.push(`not loaded: ${one.url().slice(0, 80)}`));
  page.on('dialog', one => { dialogs.push(one.message()); one.accept(asked.answer ?? ''); });
  await page.setViewport({width: asked.width ?? 1280, height: asked.height ?? 900});
  await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: asked.dark ? 'dark' : 'light'}]);
  await page.goto(asked.url, {waitUntil: 'load'});
  if (asked.wait) await page.waitForFunction(asked.wait, {timeout: 20000});
  for (const selector of asked.clicks ?? []) await page.click(selector);
  let findings = null;
  if (asked.axe) {
    // By the debugger, because the page's policy refuses foreign scripts.
    await page.evaluate(fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'));
    const {violations} = await page.evaluate(() => axe.run(document, {resultTypes: ['violations']}));
    findings = violations.filter(one => ['serious', 'critical'].includes(one.impact))
      .map(one => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 120))}`);
  }
  const said = asked.ask ? await page.evaluate(asked.ask) : null;
  if (asked.picture) await page.screenshot({path: asked.picture, fullPage: asked.whole ?? true});
  console.log(JSON.stringify({messages, dialogs, findings, said}));
} finally {
  await browser.close();
}
