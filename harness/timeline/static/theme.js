// Light or dark: as the address says, else as TensorBoard is around the page, else as the system is.

export function follow(look) {
  const said = new URLSearchParams(location.search).get('theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  const board = top.document.querySelector('tb-webapp') && top.document.body;
  const isDark = () => (said ? said === 'dark' : board ? board.classList.contains('dark-mode') : system.matches);
  const apply = () => look(isDark());
  if (board) new MutationObserver(apply).observe(board, {attributes: true, attributeFilter: ['class']});
  system.addEventListener('change', apply);
  apply();
}
