// A spoken turn on the page in Firefox, over WebDriver BiDi. `node turn.mjs FIREFOX URL PLAYER...`:
// runs PLAYER, which plays speech into the microphone, once the page listens. Prints JSON.
import { spawn } from 'node:child_process';
import puppeteer from 'puppeteer-core';

const [executablePath, url, player, ...clip] = process.argv.slice(2);
const TIMEOUT_MS = 60_000;
const LEAST_ENERGY = 1e-4; // of the sound that the browser received: more than silence has

const browser = await puppeteer.launch({
  browser: 'firefox',
  executablePath,
  headless: true,
  extraPrefsFirefox: {
    'media.navigator.permission.disabled': true, // nobody is asked about the microphone
    'media.autoplay.default': 0, // sound may play
    'intl.accept_languages': 'en-GB',
  },
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.evaluateOnNewDocument(() => {
    window.peers = [];
    const Plain = window.RTCPeerConnection;
    window.RTCPeerConnection = class extends Plain {
      constructor(...given) {
        super(...given);
        window.peers.push(this);
      }
    };
  });
  await page.goto(url);
  await page.locator('[data-testid="mic"]').click();
  await page.waitForSelector('html[data-state="listening"]');
  spawn(player, clip, { stdio: 'inherit' });
  await page.waitForSelector('[data-testid="turn"][data-status="answered"]');
  await page.waitForFunction(
    async (least) => {
      const reports = await Promise.all(window.peers.map((peer) => peer.getStats()));
      const stats = reports.flatMap((report) => [...report.values()]);
      return stats.some((stat) => stat.type === 'inbound-rtp' && stat.totalAudioEnergy > least);
    },
    { polling: 100 },
    LEAST_ENERGY,
  );
  const turn = await page.evaluate(() => {
    const part = (name) => document.querySelector(`[data-testid="${name}"]`).textContent;
    const lamp = document.querySelector('[data-testid="entity-light.living_room_lamp"]');
    return { said: part('said'), reply: part('reply'), lamp: lamp.dataset.state };
  });
  console.log(JSON.stringify({ browser: await browser.version(), ...turn, errors }));
} finally {
  await browser.close();
}
