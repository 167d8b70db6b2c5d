// The search of the site runs in a worker, and a browser starts none for pages that it opened from a folder.
// There, a frame takes the worker's place: the same script, the same messages, in the page's own thread.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.title = "search"
      document.body.append(frame)
      const inner = frame.contentWindow
      // What the script sends comes back here. Arguments of another window's messages have no target origin.
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script")
        script.src = new URL(url, location.href).href
        script.onload = () => resolve(inner)
        script.onerror = () => reject(new Error(`${script.src} cannot be loaded`))
        frame.contentDocument.body.append(script)
      })
    }

    postMessage(data) {
      this.ready.then(inner => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
    }
  }
  window.Worker = window.IFrameWorker
}
