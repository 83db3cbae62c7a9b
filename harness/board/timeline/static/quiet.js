// What the Perfetto UI asks of other machines and of other programs on this one is answered here, with a no: a
// Google script at its start, and whether a trace processor runs on a port of this machine. The content security
// policy would refuse both, and say so in the console each time. The UI's own policy is looser and goes too.

const own = (address) => new URL(address, location.href).origin === location.origin;

const append = document.head.append.bind(document.head);
document.head.append = (...nodes) => {
  for (const node of nodes) {
    if (node instanceof HTMLScriptElement && !own(node.src)) {
      node.dispatchEvent(new Event('error'));
    } else if (!(node instanceof HTMLMetaElement && node.httpEquiv === 'Content-Security-Policy')) {
      append(node);
    }
  }
};

const ask = window.fetch.bind(window);
window.fetch = (resource, options) => {
  const address = resource instanceof Request ? resource.url : String(resource);
  return own(address) || /^(blob|data):/.test(address) ? ask(resource, options) : Promise.reject(new TypeError('offline'));
};
